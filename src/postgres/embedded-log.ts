/** The methods of a logger that this folder needs; pino has this shape. */
export interface EmbeddedLog {
  info(fields: object, event: string): void;
  warn(fields: object, event: string): void;
}
