#!/usr/bin/env node
/**
 * Copies the database of the upstream service into a ledger: a tool that runs once in the life of a
 * ledger, and no part of the service (docs/import.md). `session-ledger import` runs it too.
 */
import { endingSignal } from "../../src/cli/io.ts";
import { loadConfig } from "../../src/config/config.ts";
import { importUpstream } from "./command.ts";

const { stdout, stderr } = process;
process.exitCode = await importUpstream(process.argv.slice(2), {
  stdout,
  stderr,
  signal: endingSignal(),
  loadConfig: () => loadConfig(),
});
