import js from "@eslint/js";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import ts from "typescript-eslint";
import svelteConfig from "./svelte.config.js";

const shell = {
  group: ["@tauri-apps/*"],
  message: "Only src/lib/backend/tauri.ts knows the shell; everything else goes through the Backend interface.",
};

export default ts.config(
  { ignores: ["dist/", "src/lib/types/"] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: globals.browser } },
  { files: ["**/*.svelte", "**/*.svelte.ts"], languageOptions: { parserOptions: { parser: ts.parser, svelteConfig } } },
  {
    rules: {
      // File content and model text are hostile: never markup.
      "svelte/no-at-html-tags": "error",
      // TypeScript knows what is defined.
      "no-undef": "off",
      "no-restricted-imports": ["error", { patterns: [shell] }],
    },
  },
  { files: ["src/lib/backend/tauri.ts"], rules: { "no-restricted-imports": "off" } },
);
