/** A table as CSV, as RFC 4180 has it. A cell that a spreadsheet would take for a formula gets a mark in front. */
export function csv(columns: string[], rows: string[][]): string {
  return [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

function cell(text: string): string {
  const tame = /^[=+@\t\r]|^-[^\d.]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(tame) ? `"${tame.replaceAll('"', '""')}"` : tame;
}
