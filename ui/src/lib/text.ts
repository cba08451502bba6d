/** A stretch of text, marked or not. */
export interface Part {
  text: string;
  marked: boolean;
}

/** Splits `text` around every occurrence of `code`, so that a view can mark them without making markup of the text. */
export function splitAround(text: string, code: string): Part[] {
  if (code === "") return text === "" ? [] : [{ text, marked: false }];
  const parts: Part[] = [];
  for (const [i, plain] of text.split(code).entries()) {
    if (i > 0) parts.push({ text: code, marked: true });
    if (plain !== "") parts.push({ text: plain, marked: false });
  }
  return parts;
}

/**
 * What acts unseen: embeddings, overrides and isolates of direction, control characters, spaces and breaks without width.
 * Joiners and marks of direction stay, since emoji and several scripts are written with them.
 */
const HIDDEN = /(?![\t\n\r])\p{Cc}|[\u200b\u2028-\u202e\u2060\u2066-\u2069\ufeff]/gu;

/** Text of a file or a model as it can be shown: what acts unseen stands there as a mark, `‹U+202E›`. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (character) => `‹U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

/** The last part of a path, whichever separator it uses, as it can be shown. */
export function fileName(path: string): string {
  return visible(path.split(/[\\/]/).findLast((part) => part !== "") ?? path);
}

/** A path as seen from a folder, whole when it lies elsewhere, as it can be shown. */
export function within(root: string, path: string): string {
  const rest = path.startsWith(root) ? path.slice(root.length) : "";
  return visible(/^[\\/]./.test(rest) ? rest.slice(1) : path);
}

/** Every path once, in the order in which they came. */
export function unique(paths: string[]): string[] {
  return [...new Set(paths)];
}

/** The paths that are not among `others`. */
export function without(paths: string[], others: string[]): string[] {
  const out = new Set(others);
  return paths.filter((path) => !out.has(path));
}
