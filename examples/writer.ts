import { createSessionWriter, readSession } from "@session-ledger/runner";

const [, , sessionId = "writer", address = "127.0.0.1:9000"] = process.argv;
const writer = createSessionWriter({ address, sessionId, onProblem: console.error });

async function* agent() {
  for (const word of ["It", " is", " noon", "."]) yield word;
}
writer.message({ type: "user", payload: "What is the time?" });
await writer.text(agent()); // Or writer.event(event), for each AG-UI event of the agent.
await writer.close();

for await (const { seq, eventType, event } of readSession({ address, sessionId, expand: true })) {
  console.log(seq, eventType, event["delta"] ?? "");
}
