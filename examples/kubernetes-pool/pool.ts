/** One member of a pool: serves every session that waits. Kubernetes runs as many as you like. */
import { createRunner } from "@session-ledger/runner/bridge";
import { ToolBridge } from "../typescript-runner/agent.ts";

const { LEDGER_GRPC: address = "127.0.0.1:9000", POD_NAME: name = "pool-0" } = process.env;
const onProblem = console.error;
// SIGTERM ends the runs in progress, and then the process.
await createRunner(new ToolBridge(), { address, name, onProblem }).pool({ atOnce: 5 });
