// A static file server on node:http: GET and HEAD, single ranges, connections kept alive.
//
//   node server.mjs --host ADDRESS --port PORT --root FOLDER [--workers N]
//
// With more than one worker each is a process and the first one hands connections out in turn. A
// single worker answers by itself: handing over would only cost.

import cluster from "node:cluster";
import { createReadStream } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import http from "node:http";
import path from "node:path";
import { pipeline } from "node:stream";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    host: { type: "string" },
    port: { type: "string" },
    root: { type: "string" },
    workers: { type: "string", default: "1" },
  },
});
const root = await realpath(options.root);
const workers = Number(options.workers);

const types = new Map([
  [".m3u8", "application/vnd.apple.mpegurl"],
  [".mpd", "application/dash+xml"],
  [".mp4", "video/mp4"],
  [".m4s", "video/mp4"],
  [".ts", "video/mp2t"],
  [".html", "text/html"],
]);

/** The file that a request means; nothing where it leads out of the root or is not escaped well. */
function fileOf(url) {
  try {
    const name = decodeURIComponent(url.split("?", 1)[0]);
    const file = path.join(root, name);
    return file.startsWith(root + path.sep) && !name.includes("\0") ? file : undefined;
  } catch {
    return undefined;
  }
}

/** First and last byte (RFC 9110, 14.1.2), null where all is meant, undefined where there is none. */
function rangeOf(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return null;
  if (match[1] === "") {
    const length = Math.min(Number(match[2]), size);
    return length > 0 ? [size - length, size - 1] : undefined;
  }
  const first = Number(match[1]);
  const last = match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1);
  if (match[2] !== "" && Number(match[2]) < first) return null;
  return first < size ? [first, last] : undefined;
}

async function answer(request, response) {
  if (request.method !== "GET" && request.method !== "HEAD") {
    response.writeHead(405, { Allow: "GET, HEAD" }).end();
    return;
  }
  const file = fileOf(request.url);
  const found = file && (await stat(file).catch(() => undefined));
  if (!found?.isFile()) {
    response.writeHead(404).end();
    return;
  }
  const range = rangeOf(request.headers.range, found.size);
  if (range === undefined) {
    response.writeHead(416, { "Content-Range": `bytes */${found.size}` }).end();
    return;
  }
  const [first, last] = range ?? [0, found.size - 1];
  const head = {
    "Content-Type": types.get(path.extname(file)) ?? "application/octet-stream",
    "Content-Length": last - first + 1,
    "Last-Modified": found.mtime.toUTCString(),
    "Accept-Ranges": "bytes",
  };
  if (range) head["Content-Range"] = `bytes ${first}-${last}/${found.size}`;
  response.writeHead(range ? 206 : 200, head);
  if (request.method === "HEAD" || last < first) {
    response.end();
    return;
  }
  // Ends the file with the connection, and the other way round; either is no error here.
  pipeline(createReadStream(file, { start: first, end: last }), response, () => {});
}

if (cluster.isPrimary && workers > 1) {
  let listening = 0;
  cluster.on("listening", () => {
    listening += 1;
    if (listening === workers) console.log("ready");
  });
  for (let each = 0; each < workers; each += 1) cluster.fork();
  cluster.on("exit", (worker, code) => process.exit(code || 1));
} else {
  const server = http.createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  // A load's pauses must not cost it its connections.
  server.keepAliveTimeout = 300_000;
  server.listen({ host: options.host, port: Number(options.port), backlog: 4096 }, () => {
    if (cluster.isPrimary) console.log("ready");
  });
}
