#!/usr/bin/env node
// A solc executable for forge around the WebAssembly compiler from npm: version in solc's two lines, otherwise
// standard-json from stdin to stdout. Other flags (forge passes --allow-paths) do not apply, as forge sends every source.
import { createRequire } from "node:module";
import { readFileSync, writeSync } from "node:fs";

const solc = createRequire(import.meta.url)("solc");

if (process.argv.includes("--version")) {
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${solc.version()}`);
} else {
  const answer = Buffer.from(solc.compile(readFileSync(0, "utf8")));
  for (let sent = 0; sent < answer.length; ) sent += writeSync(1, answer, sent);
}
