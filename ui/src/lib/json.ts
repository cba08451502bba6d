/** A stretch of a line of JSON, and what it is. */
export interface Token {
  text: string;
  kind: "key" | "string" | "number" | "word" | "plain";
}

const PATTERN = /("(?:[^"\\]|\\.)*"?)(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null|NaN|-?Infinity)\b/g;

/** A line of JSON in parts that a view can colour; joined they are the line. */
export function tokens(line: string): Token[] {
  const found: Token[] = [];
  const add = (text: string, kind: Token["kind"]) => text !== "" && found.push({ text, kind });
  let at = 0;
  for (const match of line.matchAll(PATTERN)) {
    const [whole, text, colon, number] = match;
    add(line.slice(at, match.index), "plain");
    if (text !== undefined) {
      add(text, colon === undefined ? "string" : "key");
      add(colon ?? "", "plain");
    } else add(whole, number === undefined ? "word" : "number");
    at = match.index + whole.length;
  }
  add(line.slice(at), "plain");
  return found;
}
