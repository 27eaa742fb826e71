const MICROS_PER_SECOND = 1_000_000n;
const NANOS_PER_MICRO = 1_000;

/** In the form of google.protobuf.Timestamp; for times after 1970. */
export function timestampOf(micros: bigint): { readonly seconds: bigint; readonly nanos: number } {
  return {
    seconds: micros / MICROS_PER_SECOND,
    nanos: Number(micros % MICROS_PER_SECOND) * NANOS_PER_MICRO,
  };
}
