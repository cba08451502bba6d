/** Whether this is a Mac, whose menus and keys have customs of their own. */
export const isMac = (): boolean => navigator.userAgent.includes("Mac");

/** A shortcut as it is written here. */
export const written = (key: string): string => `${isMac() ? "⌘" : "Ctrl "}${key.toUpperCase()}`;

/** The key that was pressed with ⌘ or Ctrl alone, if one was. */
export function shortcut(event: KeyboardEvent): string | null {
  if (event.altKey || event.shiftKey || !(event.ctrlKey || event.metaKey)) return null;
  return event.key.toLowerCase();
}
