import { Asking } from "./asking.svelte";
import { bytesOf, type Drop, type Shell } from "./backend";
import { t, type Language } from "../look.svelte";
import type { Call } from "../types/Call";
import type { ErrorReport } from "../types/ErrorReport";
import type { Rendered } from "../types/Rendered";

const TITLE = "Kakeya Gate";

/** Where the key of this page is kept: for this tab and this server alone. */
const KEY = "key";

/** Milliseconds after which a download no longer needs its address. */
const DOWNLOADED = 60_000;

/**
 * A browser, served by `kakeya-gate serve`: `crates/serve` is its other side. Null when the page has no key: its address was
 * used before, or is none that the program printed.
 */
export async function http(): Promise<Shell | null> {
  const token = location.hash.slice(1);
  if (token !== "") {
    history.replaceState(null, "", location.pathname);
    const answer = await send("/session", { token });
    if (answer.ok) sessionStorage.setItem(KEY, ((await answer.json()) as { key: string }).key);
  }
  const key = sessionStorage.getItem(KEY);
  return key === null ? null : shell(key);
}

function shell(key: string): Shell {
  const asking = new Asking();
  const feed = new Feed(key);
  return {
    call: (call, language, onNews) => (onNews ? feed.ask(call, language, onNews) : ask(key, call, language)),
    chooseFolder: () => asking.ask("folder"),
    chooseFiles: async () => {
      const path = await asking.ask("files");
      return path === null ? [] : [path];
    },
    save: download,
    copyText: (text) => navigator.clipboard.writeText(text),
    onDrop: drops,
    asking,
    notify: markTitle,
    menu: null,
    onOpen: null,
  };
}

/** The name of the tab says it until somebody looks. */
function markTitle(title: string): void {
  if (document.hasFocus()) return;
  document.title = `● ${title}`;
  addEventListener("focus", () => (document.title = TITLE), { once: true });
}

function send(to: string, body: unknown, more: Record<string, string> = {}): Promise<Response> {
  const headers = { "content-type": "application/json", ...more };
  return fetch(to, { method: "POST", headers, body: JSON.stringify(body) }).catch(gone);
}

/** What a browser says when nobody answers helps nobody. */
function gone(): never {
  throw { code: "gone", message: t().door.gone, hint: t().door.goneHint } satisfies ErrorReport;
}

/** What a call with a key carries beside itself. */
const signed = (key: string, language: Language) => ({ authorization: `Bearer ${key}`, "accept-language": language });

async function ask(key: string, call: Call, language: Language): Promise<unknown> {
  const response = await send("/call", call, signed(key, language));
  if (!response.ok) throw await refusal(response);
  return response.json().catch(gone);
}

type Line = { number: number } & ({ news: unknown } | { answer: unknown } | { error: unknown });

/** A call that is being answered. */
interface Open {
  onNews: (news: unknown) => void;
  resolve: (answer: unknown) => void;
  reject: (error: unknown) => void;
}

/** News of all calls of this page come over one connection: a browser opens six at most, whatever the number of its pages. */
class Feed {
  readonly #key: string;
  readonly #name = crypto.randomUUID();
  readonly #open = new Map<number, Open>();
  #listening: Promise<void> | null = null;
  #last = 0;

  constructor(key: string) {
    this.#key = key;
  }

  async ask(call: Call, language: Language, onNews: (news: unknown) => void): Promise<unknown> {
    this.#listening ??= this.#listen(language).catch((error: unknown) => {
      this.#listening = null;
      throw error;
    });
    await this.#listening;
    const number = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#open.set(number, { onNews, resolve, reject });
      this.#tell({ feed: this.#name, number, call }, language).catch((error: unknown) => {
        this.#open.delete(number);
        reject(error as Error);
      });
    });
  }

  async #tell(told: object, language: Language): Promise<void> {
    const response = await send("/told", told, signed(this.#key, language));
    if (!response.ok) throw await refusal(response);
  }

  /** Resolves once the feed is open. */
  async #listen(language: Language): Promise<void> {
    const response = await send("/feed", { feed: this.#name }, signed(this.#key, language));
    if (!response.ok) throw await refusal(response);
    void this.#hear(response);
  }

  async #hear(response: Response): Promise<void> {
    try {
      for await (const text of lines(response)) this.#take(JSON.parse(text) as Line);
      gone();
    } catch (error) {
      this.#listening = null;
      for (const { reject } of this.#open.values()) reject(error);
      this.#open.clear();
    }
  }

  #take(line: Line): void {
    const open = this.#open.get(line.number);
    if ("news" in line) return open?.onNews(line.news);
    this.#open.delete(line.number);
    if ("error" in line) open?.reject(line.error);
    else open?.resolve(line.answer);
  }
}

async function refusal(response: Response): Promise<unknown> {
  const text = await response.text();
  const isReport = response.headers.get("content-type")?.startsWith("application/json");
  return isReport ? (JSON.parse(text) as unknown) : new Error(`${response.status}: ${text}`);
}

async function* lines(response: Response): AsyncGenerator<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    while (reader) {
      const { done, value } = await reader.read().catch(gone);
      const parts = (rest + decoder.decode(value, { stream: !done })).split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
      if (done) return;
    }
  } finally {
    // Whoever stops reading gives the connection back.
    reader?.cancel().catch(() => null);
  }
}

/** Files that are dropped would be opened in place of the page. Where they lie, a browser does not say. */
async function drops(listener: (drop: Drop) => void): Promise<() => void> {
  const stop = new AbortController();
  const on = (type: "dragover" | "drop", drop: Drop) => {
    const act = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      listener(drop);
    };
    addEventListener(type, act, { signal: stop.signal });
  };
  on("dragover", { kind: "over" });
  on("drop", { kind: "dropped", paths: null });
  // Within the page it goes from element to element.
  const leave = (event: DragEvent) => event.relatedTarget === null && listener({ kind: "left" });
  addEventListener("dragleave", leave, { signal: stop.signal });
  return () => stop.abort();
}

/** The browser asks where to, or knows. */
async function download({ name, content }: Rendered): Promise<string> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytesOf(content)]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), DOWNLOADED);
  return name;
}
