/** The place where a writer stores waiting records for a later process. */
export interface SpoolLog {
  /**
   * Something in a lane has changed. The call is cheap: the change is looked up at the time of the
   * write.
   */
  changed(): void;
  /** Resolves when the current epochs of the lanes are written, or when the file was given up. */
  lanesWritten(): Promise<void>;
  /** Resolves when the file is closed; true: the waiting records are in it. */
  close(): Promise<boolean>;
}
