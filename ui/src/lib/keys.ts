/** The key that shortcuts are made with, as it is written here. */
export const KEY = navigator.userAgent.includes("Mac") ? "⌘" : "Ctrl ";

/** Shortcuts beside those of the places: the key, and what it does. */
export const KEYS = [
  ["o", "open"],
  ["r", "run"],
  [".", "stop"],
  ["e", "export"],
  ["k", "palette"],
  [",", "title"],
] as const;

/** What a shortcut asks for: the number of a place, or a name of {@link KEYS}. */
export type Shortcut = number | (typeof KEYS)[number][1];

/** The shortcut that was pressed, if it was one. */
export function shortcut(event: KeyboardEvent): Shortcut | null {
  if (event.altKey || event.shiftKey || !(event.ctrlKey || event.metaKey)) return null;
  const place = Number(event.key);
  if (place >= 1 && place <= 5) return place;
  return KEYS.find(([key]) => key === event.key.toLowerCase())?.[1] ?? null;
}
