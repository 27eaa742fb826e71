/** Whether events are legal for AG-UI: the schemas and the order of both generations. */
import { type BaseEvent as BaseEvent1, verifyEvents as verifyEvents1 } from "@ag-ui/client";
import { EventSchema } from "@ag-ui/core/schemas";
import { type BaseEvent as BaseEvent0, verifyEvents as verifyEvents0 } from "agui-client-0";
import { EventSchemas } from "agui-core-0";
import { from, lastValueFrom, toArray } from "rxjs";
import { z } from "zod";

const eventSchema0 = z.custom<BaseEvent0>((event) => EventSchemas.safeParse(event).success);
const eventSchema1 = z.custom<BaseEvent1>((event) => EventSchema.safeParse(event).success);

/** Rejects with the first violation. */
export async function checkLegal(events: readonly object[]): Promise<void> {
  const before = events.map((event) => eventSchema0.parse(event));
  await lastValueFrom(from(before).pipe(verifyEvents0(false), toArray()));
  const now = events.map((event) => eventSchema1.parse(event));
  await lastValueFrom(from(now).pipe(verifyEvents1(false), toArray()));
}
