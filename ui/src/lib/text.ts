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

/** The last part of a path, whichever separator it uses. */
export function fileName(path: string): string {
  return path.split(/[\\/]/).findLast((part) => part !== "") ?? path;
}

/** A path as seen from a folder; as it is when it lies elsewhere. */
export function within(root: string, path: string): string {
  const rest = path.startsWith(root) ? path.slice(root.length) : "";
  return /^[\\/]./.test(rest) ? rest.slice(1) : path;
}

/** Every path once, in the order in which they came. */
export function unique(paths: string[]): string[] {
  return paths.filter((path, i) => paths.indexOf(path) === i);
}
