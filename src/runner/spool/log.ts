/** Where a writer puts down what waits, for a process that comes after it. */
export interface SpoolLog {
  /** Something of a lane is not as it was. Costs nothing: what changed is looked up when it is written. */
  changed(): void;
  /** Resolves when the lanes' epochs as they are now are written, or nothing will ever be. */
  lanesWritten(): Promise<void>;
  /** Resolves when nothing of it is open any more; true: what waits is in it. */
  close(): Promise<boolean>;
}
