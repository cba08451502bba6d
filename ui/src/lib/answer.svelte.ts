import { errorReport } from "./backend/backend";
import type { ErrorReport } from "./types/ErrorReport";

/** What a question to the backend has come to: its value or its error, and whether it is still open. */
export class Answer<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<ErrorReport | null>(null);
  busy = $state(false);
  #turn = 0;
  #question: (() => Promise<T>) | null = null;

  /** Asks. When asked again before the answer is there, the older answer is dropped. */
  async ask(question: () => Promise<T>): Promise<void> {
    const turn = ++this.#turn;
    this.#question = question;
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

  /** Asks the last question again, if there was one: the answer may have changed. */
  async again(): Promise<void> {
    if (this.#question !== null) await this.ask(this.#question);
  }

  /** Forgets everything; an open question is dropped. */
  clear(): void {
    this.#turn++;
    this.#question = null;
    this.value = null;
    this.error = null;
    this.busy = false;
  }
}
