/** What this folder needs of a logger; pino has this shape. */
export interface EmbeddedLog {
  info(fields: object, event: string): void;
  warn(fields: object, event: string): void;
}
