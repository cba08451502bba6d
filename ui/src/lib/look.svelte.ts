import { en, type Words } from "./words/en";
import { zh } from "./words/zh";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const LANGUAGES = { en, zh } as const satisfies Record<string, Words>;
export type Language = keyof typeof LANGUAGES;

const THEME = "theme";
const LANGUAGE = "language";

/** How the pages look and which language they speak; remembered. */
class Look {
  theme = $state<Theme>("system");
  language = $state<Language>("en");
  #systemIsDark = $state(false);

  /** Whether the ground is dark. */
  get dark(): boolean {
    return this.theme === "system" ? this.#systemIsDark : this.theme === "dark";
  }

  get words(): Words {
    return LANGUAGES[this.language];
  }

  /** Takes what was remembered, and follows the system from now on. */
  begin(): void {
    const system = matchMedia("(prefers-color-scheme: dark)");
    this.#systemIsDark = system.matches;
    system.addEventListener("change", () => (this.#systemIsDark = system.matches));
    const theme = localStorage.getItem(THEME);
    this.theme = THEMES.find((known) => known === theme) ?? "system";
    const language = localStorage.getItem(LANGUAGE) ?? navigator.language;
    this.language = language.startsWith("zh") ? "zh" : "en";
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem(THEME, theme);
  }

  setLanguage(language: Language): void {
    this.language = language;
    localStorage.setItem(LANGUAGE, language);
  }
}

export const look = new Look();

/** The messages in the language that is chosen. */
export const t = (): Words => look.words;
