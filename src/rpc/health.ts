import type { Server } from "@grpc/grpc-js";
import { HealthImplementation } from "grpc-health-check";

/** grpc.health.v1, for the server as a whole (the empty name) and for each service. */
export class Health {
  readonly #names: readonly string[];
  readonly #implementation: HealthImplementation;

  constructor(services: readonly string[]) {
    this.#names = ["", ...services];
    this.#implementation = new HealthImplementation(
      Object.fromEntries(this.#names.map((name) => [name, "NOT_SERVING"])),
    );
  }

  addTo(server: Server): void {
    this.#implementation.addToServer(server);
  }

  set(isServing: boolean): void {
    const status = isServing ? "SERVING" : "NOT_SERVING";
    for (const name of this.#names) this.#implementation.setStatus(name, status);
  }
}
