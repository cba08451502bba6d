import { KEY } from "./keys";
import { LANGUAGES, look, t, THEMES, type Language } from "./look.svelte";
import { PLACES, type Session } from "./session.svelte";
import { visible, within } from "./text";

/** Something that the palette offers. */
export interface Command {
  name: string;
  /** What kind of thing it is, where that is not obvious. */
  kind?: string;
  /** Its shortcut, as it is written. */
  key?: string;
  act: () => void;
}

/** Everything that can be done now, then every file that can be opened. */
export function commands(session: Session, openSettings: () => void): Command[] {
  const words = t().palette;
  const root = session.workspace.value?.root ?? "";
  const opened = session.workspace.value !== null;
  const list: Command[] = PLACES.map((place, i) => ({
    name: words.go(t().places[place]),
    key: `${KEY}${i + 1}`,
    act: () => (session.place = place),
  }));
  list.push({ name: words.open, key: `${KEY}O`, act: () => void session.chooseWorkspace() });
  if (opened) {
    list.push({ name: words.add, act: () => void session.chooseEvidence() });
    list.push({ name: words.read, act: () => void session.refreshEvidence() });
    list.push({ name: words.export, key: `${KEY}E`, act: () => session.openExport() });
  }
  if (session.pack !== null) list.push({ name: words.checks, act: () => void session.checkAll() });
  if (session.run.active) list.push({ name: words.stop, key: `${KEY}.`, act: () => void session.run.cancel() });
  else if (session.spec) list.push({ name: words.start, key: `${KEY}R`, act: () => session.askToRun() });
  const others = session.recent.filter((folder) => folder !== root);
  list.push(...others.map((folder) => ({ name: words.reopen(visible(folder)), act: () => void session.open(folder) })));
  list.push(...THEMES.map((theme) => ({ name: words.theme(t().settings[theme]), act: () => look.setTheme(theme) })));
  for (const language of Object.keys(LANGUAGES) as Language[]) {
    list.push({ name: words.language(LANGUAGES[language].language), act: () => look.setLanguage(language) });
  }
  list.push({ name: words.settings, key: `${KEY},`, act: openSettings });
  const rows = session.evidence.value?.rows ?? [];
  list.push(
    ...rows.map(({ path }) => ({ name: within(root, path), kind: words.file, act: () => session.openEvidence(path) })),
  );
  return list;
}
