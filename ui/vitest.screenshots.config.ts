import { mergeConfig } from "vitest/config";
import browser from "./vitest.browser.config.ts";

/** Pictures for the documentation: `npm run screenshots`. */
export default mergeConfig(browser, { test: { include: ["browser/screenshots.ts"], exclude: ["browser/**/*.test.ts"] } });
