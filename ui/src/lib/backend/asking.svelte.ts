/** What the user is asked for in the page itself. */
export type Question = { kind: "folder" | "files"; answer: (path: string | null) => void };

/** Asks for a path in the page, where no native dialog can be opened. */
export class Asking {
  question = $state.raw<Question | null>(null);

  /** Resolves with the path, or with null when the user changes their mind. */
  ask(kind: Question["kind"]): Promise<string | null> {
    this.question?.answer(null);
    return new Promise((resolve) => {
      this.question = {
        kind,
        answer: (path) => {
          this.question = null;
          resolve(path);
        },
      };
    });
  }
}
