import { expect, test } from "vitest";
import { Answer } from "./answer.svelte";
import { Backend, type Shell } from "./backend/backend";
import { look } from "./look.svelte";

/** A program that answers with the language in which it was asked. */
const shell = { call: async (_: unknown, language: string) => language } as unknown as Shell;

test("what was said is said again in the language that was chosen since", async () => {
  const backend = new Backend(shell);
  const answer = new Answer<unknown>();
  await answer.ask(() => backend.gate([]));
  expect(answer.value).toBe("en");
  look.language = "zh";
  await answer.again();
  expect(answer.value).toBe("zh");
  look.language = "en";
});

test("what was forgotten is not asked again", async () => {
  const answer = new Answer<number>();
  let asked = 0;
  await answer.ask(async () => ++asked);
  answer.clear();
  await answer.again();
  expect([asked, answer.value]).toEqual([1, null]);
});

test("the very same question is asked once, one that failed again", async () => {
  const answer = new Answer<number>();
  const [list, other] = [[], []];
  let asked = 0;
  const ask = (about: unknown[], fails = false) =>
    answer.askAbout(about, async () => {
      asked++;
      if (fails) throw new Error("no");
      return asked;
    });
  await ask([list, 1]);
  await ask([list, 1]);
  expect(asked).toBe(1);
  await answer.again();
  await ask([list, 1]);
  expect(asked, "said again, it is still about the same").toBe(2);
  await ask([other, 1], true);
  await ask([other, 1]);
  expect([asked, answer.value]).toEqual([4, 4]);
  await answer.ask(async () => 0);
  await ask([other, 1]);
  expect(asked, "something else was asked in between").toBe(5);
});
