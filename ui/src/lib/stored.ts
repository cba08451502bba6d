/** A list of texts in the local storage; empty where there is none or something else. */
export function storedTexts(key: string): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(stored) ? stored.filter((text) => typeof text === "string") : [];
  } catch {
    return [];
  }
}
