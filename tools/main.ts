#!/usr/bin/env node
/** The entry of the bundle (decision 044). */
import { enableCompileCache } from "node:module";
import { join } from "node:path";

// At its end the process writes its compiled code into a folder of the bundle, and the next one takes it. Where the
// folder cannot be written, each start compiles.
enableCompileCache(join(import.meta.dirname, "compile-cache"));
await import("../src/main.ts");
