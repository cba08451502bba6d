import { untrack } from "svelte";
import { errorReport } from "./backend/backend";
import type { ErrorReport } from "./types/ErrorReport";

/** What a question to the backend has come to: its value or its error, and whether it is still open. */
export class Answer<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<ErrorReport | null>(null);
  busy = $state(false);
  #turn = 0;
  #question: (() => Promise<T>) | null = null;
  #about: unknown[] | null = null;

  /** Asks. When asked again before the answer is there, the older answer is dropped. */
  async ask(question: () => Promise<T>): Promise<void> {
    const turn = ++this.#turn;
    this.#question = question;
    this.#about = null;
    this.busy = true;
    this.error = null;
    try {
      const value = await question();
      if (turn === this.#turn) this.value = value;
    } catch (thrown) {
      if (turn === this.#turn) {
        this.value = null;
        this.error = errorReport(thrown);
      }
    } finally {
      if (turn === this.#turn) this.busy = false;
    }
  }

  /** Asks unless the last question was about the very same things: a place that is entered again shows what it has shown. */
  async askAbout(about: unknown[], question: () => Promise<T>): Promise<void> {
    // Not tracked: an effect that asks must not ask again because it has failed.
    const failed = untrack(() => this.error) !== null;
    if (!failed && about.every((part, i) => part === this.#about?.[i])) return;
    const answered = this.ask(question);
    this.#about = about;
    await answered;
  }

  /** Asks the last question again, if there was one: the answer may have changed. */
  async again(): Promise<void> {
    const about = this.#about;
    if (this.#question === null) return;
    const answered = this.ask(this.#question);
    this.#about = about;
    await answered;
  }

  /** Forgets everything; an open question is dropped. */
  clear(): void {
    this.#turn++;
    this.#question = null;
    this.#about = null;
    this.value = null;
    this.error = null;
    this.busy = false;
  }
}
