import { Empty } from "../ui/empty.tsx";

export function SessionsPage() {
  return <Empty title="Sessions" />;
}
