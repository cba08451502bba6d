import { expect, test } from "vitest";
import { csv } from "./csv";

test("cells keep their commas, quotes and lines", () => {
  expect(csv(["a", "b"], [['say "hi"', "1,2"], ["two\nlines", "-5.0"]])).toBe(
    'a,b\r\n"say ""hi""","1,2"\r\n"two\nlines",-5.0\r\n',
  );
});

test("text of files never becomes a formula", () => {
  expect(csv(["a"], [["=HYPERLINK(1)"], ["@x"], ["+1"], ["-cmd"]])).toBe("a\r\n'=HYPERLINK(1)\r\n'@x\r\n'+1\r\n'-cmd\r\n");
});
