import { Worker } from "node:worker_threads";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { RpcClient } from "./support/grpc-client.ts";
import { SessionService } from "../gen/ambient/v1/sessions_pb.ts";
const child = spawn(process.execPath, ["test/support/noop-server.ts","127.0.0.1:0"], {stdio:["ignore","pipe","inherit"]});
const address = await new Promise(r=>child.stdout.once("data",d=>r(JSON.parse(d).address)));
const rss=()=>Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`,"utf8"))[1])/1024);
const client = new RpcClient(address);
const push = async()=>{const t=performance.now(); await client.unary(SessionService.method.pushSessionEvent,{sessionId:"s",eventType:"RAW",payload:"{}"},{deadlineMs:5000}); return performance.now()-t;};
const names = process.argv[2] ? process.argv[2].split(",") : ["none"];
for (const attack of names) {
  for (let i=0;i<20;i++) await push();
  const w = new Worker(new URL("./support/hostile-worker.ts", import.meta.url), {workerData:{address, attack, lastsMs: Number(process.argv[3]??2000)}});
  let done=false; let report; w.on("message",m=>{report=m;done=true}); w.on("error",e=>{console.log("werr",e);done=true});
  const times=[]; let maxRss=0; const t0=performance.now();
  while(!done){ try{times.push(await push());}catch(e){times.push(-1); console.log(e.code,e.message)} maxRss=Math.max(maxRss,rss()); await new Promise(r=>setTimeout(r,5)); }
  times.sort((a,b)=>a-b);
  console.log(attack.padEnd(52), "ms", Math.round(performance.now()-t0), JSON.stringify(report), "n",times.length,"p50",times[times.length>>1]?.toFixed(1),"max",times.at(-1)?.toFixed(1),"min",times[0]?.toFixed(1),"rss",maxRss);
  await w.terminate();
}
client.close(); child.kill();
process.exit(0);
