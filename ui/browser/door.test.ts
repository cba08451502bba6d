import { afterAll, beforeAll, expect, test } from "vitest";
import { Desk, demoPack, picture, workspace } from "./desk";

let desk: Desk;
let address: URL;
let token: string;
beforeAll(async () => {
  desk = await Desk.open(workspace(demoPack));
  address = new URL(await desk.address());
  token = address.hash.slice(1);
});
afterAll(() => desk.close());

/** A request that says of itself what it likes, as only programs can. */
async function ask(path: string, body: unknown, headers: Record<string, string>): Promise<{ status: number; text: string }> {
  const { request } = await import("node:http");
  return new Promise((resolve, reject) => {
    const asked = request(
      { host: "127.0.0.1", port: address.port, path, method: body === null ? "GET" : "POST", headers: { "content-type": "application/json", ...headers } },
      (answer) => {
        let text = "";
        answer.on("data", (part: Buffer) => (text += part.toString()));
        answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text }));
      },
    );
    asked.on("error", reject);
    asked.end(body === null ? undefined : JSON.stringify(body));
  });
}

test("only pages of this server, addressed by this machine's name, are answered", async () => {
  const { host, origin } = address;
  const start = { call: "start" };
  expect((await ask("/", null, { host: "evil.example" })).status).toBe(403);
  expect((await ask("/", null, { host })).status).toBe(200);
  expect((await ask("/session", { token }, { host })).status, "no origin").toBe(403);
  expect((await ask("/session", { token }, { host, origin: "http://evil.example" })).status).toBe(403);
  expect((await ask("/session", { token }, { host: "evil.example", origin: "http://evil.example" })).status).toBe(403);
  expect((await ask("/session", { token: "guess" }, { host, origin })).status).toBe(403);
  expect((await ask("/call", start, { host, origin })).status, "no key").toBe(403);
  expect((await ask("/call", start, { host, origin, authorization: `Bearer ${token}` })).status, "a token is no key").toBe(403);

  const session = await ask("/session", { token }, { host, origin });
  expect(session.status, "none of the attempts has used the token up").toBe(200);
  const { key } = JSON.parse(session.text) as { key: string };
  const answer = await ask("/call", start, { host, origin, authorization: `Bearer ${key}` });
  expect(JSON.parse(answer.text)).toHaveProperty("version");
  const told = { feed: "page", number: 1, call: start };
  expect((await ask("/feed", { feed: "page" }, { host, origin })).status, "no key").toBe(403);
  expect((await ask("/told", told, { host, origin })).status, "no key").toBe(403);
  const unheard = await ask("/told", told, { host, origin, authorization: `Bearer ${key}` });
  expect(unheard.status, "nobody listens").toBe(403);
  expect((await ask("/session", { token }, { host, origin })).status, "a token opens one page").toBe(403);
  const nonsense = await ask("/call", { call: "format-disk" }, { host, origin, authorization: `Bearer ${key}` });
  expect(nonsense.status).toBe(422);
});

test("an address opens one page, which may be read again; a used one opens none", async () => {
  const page = await desk.page();
  await page.waitForSelector("main[data-place]");
  expect(page.url(), "the token does not stay in the address").not.toContain("#");
  await page.reload();
  await page.waitForSelector("main[data-place]");
  const context = await desk.browser.newContext({ locale: "en-US" });
  const stranger = await context.newPage();
  await stranger.goto(address.href);
  await stranger.waitForSelector("h1");
  expect(await stranger.textContent("h1")).toContain("not signed in");
  await picture(stranger, "locked");
});
