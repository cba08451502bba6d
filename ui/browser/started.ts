import { existsSync } from "node:fs";
import { program } from "./desk";

/** Says what is missing before any test fails for it. */
export function setup(): void {
  if (!existsSync(program())) throw new Error(`${program()} is missing; build it: cargo build --workspace`);
}
