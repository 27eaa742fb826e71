/** The fields of the requests of an RPC, from the descriptors: to put any value into one of them. */
import { type DescField, type DescMessage, type DescMethod, ScalarType } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

export type Init = Readonly<Record<string, unknown>>;

export interface RequestField {
  /** As violations name it: `sender.display_name`. */
  readonly path: string;
  /** From the field of the request down to this one. */
  readonly way: readonly DescField[];
  readonly kind: "text" | "texts" | "number" | "enum" | "flag" | "time" | "other";
}

/** The fields that hold a value, also those of messages inside of the request. */
export function fieldsOf({ input }: Pick<DescMethod, "input">): readonly RequestField[] {
  const below = (message: DescMessage, above: readonly DescField[]): readonly RequestField[] =>
    message.fields.flatMap((field) => {
      const way = [...above, field];
      const inner = field.message;
      if (inner !== undefined && !inner.typeName.startsWith("google.")) return below(inner, way);
      return [{ path: way.map(({ name }) => name).join("."), way, kind: kindOf(field) }];
    });
  return below(input, []);
}

function kindOf(field: DescField): RequestField["kind"] {
  if (field.fieldKind === "map") return "texts";
  if (field.fieldKind === "list") return field.scalar === ScalarType.STRING ? "texts" : "other";
  if (field.fieldKind === "enum") return "enum";
  if (field.fieldKind === "message") {
    return field.message.typeName === "google.protobuf.Timestamp" ? "time" : "other";
  }
  if (field.scalar === ScalarType.STRING) return "text";
  return field.scalar === ScalarType.BOOL ? "flag" : "number";
}

/** Below zero: undefined for an unsigned number. */
export function minusOne({ way }: RequestField): number | bigint | undefined {
  const scalar = way.at(-1)?.scalar;
  if (scalar === ScalarType.INT64) return -1n;
  return scalar === ScalarType.INT32 ? -1 : undefined;
}

/** The request with this value in the field. */
export function withValue(request: Init, way: readonly DescField[], value: unknown): Init {
  const [field, ...rest] = way;
  if (field === undefined) throw new RangeError("no field");
  const { localName, oneof } = field;
  const whole =
    oneof === undefined ? request[localName] : recordOf(request[oneof.localName])["value"];
  const inner = rest.length === 0 ? value : withValue(recordOf(whole), rest, value);
  return oneof === undefined
    ? { ...request, [localName]: inner }
    : { ...request, [oneof.localName]: { case: localName, value: inner } };
}

function recordOf(value: unknown): Init {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

/** Bytes in a text field, which override the text of the request that they are appended to. */
export function encodedField(way: readonly DescField[], bytes: Uint8Array): Uint8Array {
  const tagged = (number: number, inner: Uint8Array): Uint8Array =>
    new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(inner).finish();
  const isMap = way.at(-1)?.fieldKind === "map";
  return way.reduceRight(
    (inner, { number }) => tagged(number, inner),
    isMap ? tagged(1, bytes) : bytes,
  );
}
