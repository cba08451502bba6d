import { defineConfig } from "vitest/config";

/** The pages in a real browser, served by the real program: `npm run browser`. */
export default defineConfig({
  test: {
    environment: "node",
    include: ["browser/**/*.test.ts"],
    globalSetup: "browser/started.ts",
    testTimeout: 180_000,
    hookTimeout: 60_000,
    // One program and one browser at a time: the machine runs a model meanwhile.
    fileParallelism: false,
  },
});
