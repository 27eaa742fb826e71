/** The endpoints of a runner: `docs/writing.md` is the guide. `createRunner(…).fetch` has them too. */
export { endpointsOf } from "./endpoints.ts";
export type { EndpointParts, Feedback, Fetch } from "./endpoints.ts";
/** A server of node:http for them. */
export { listen } from "./server.ts";
export type { HttpServer } from "./server.ts";
