// A static file server for `deno serve`: GET and HEAD, single ranges. Its argument is the root.

const root = Deno.realPathSync(Deno.args[0]);

/** The most that is read of a file at a time, as fs.createReadStream has it. */
const BLOCK = 64 * 1024;

const types: Record<string, string> = {
  m3u8: "application/vnd.apple.mpegurl",
  mpd: "application/dash+xml",
  mp4: "video/mp4",
  m4s: "video/mp4",
  ts: "video/mp2t",
  html: "text/html",
};

/** First and last byte (RFC 9110, 14.1.2), null where all is meant, undefined where there is none. */
function rangeOf(header: string | null, size: number): [number, number] | null | undefined {
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

/** So many bytes of a file from where it stands; the file is closed at the end. */
function bytes(file: Deno.FsFile, length: number): ReadableStream<Uint8Array> {
  let left = length;
  return new ReadableStream({
    async pull(controller) {
      const block = new Uint8Array(Math.min(BLOCK, left));
      const read = left > 0 ? await file.read(block) : null;
      if (read === null) {
        file.close();
        if (left > 0) controller.error(new Error("the file became shorter"));
        else controller.close();
        return;
      }
      left -= read;
      controller.enqueue(block.subarray(0, read));
    },
    cancel() {
      file.close();
    },
  });
}

function decoded(name: string): string | undefined {
  try {
    return decodeURIComponent(name);
  } catch {
    return undefined;
  }
}

async function answer(request: Request): Promise<Response> {
  if (request.method !== "GET" && request.method !== "HEAD") {
    return new Response(null, { status: 405, headers: { Allow: "GET, HEAD" } });
  }
  // URLs are resolved when they are parsed: only an escaped ".." can be left.
  const name = decoded(new URL(request.url).pathname);
  const inside = name !== undefined && !name.split("/").includes("..") && !name.includes("\0");
  const file = inside ? await Deno.open(root + name).catch(() => null) : null;
  if (!file) return new Response(null, { status: 404 });
  const found = await file.stat();
  if (!found.isFile) {
    file.close();
    return new Response(null, { status: 404 });
  }
  const range = rangeOf(request.headers.get("range"), found.size);
  if (range === undefined) {
    file.close();
    return new Response(null, { status: 416, headers: { "Content-Range": `bytes */${found.size}` } });
  }
  const [first, last] = range ?? [0, found.size - 1];
  const headers = new Headers({
    "Content-Type": types[name!.slice(name!.lastIndexOf(".") + 1)] ?? "application/octet-stream",
    "Content-Length": String(last - first + 1),
    "Accept-Ranges": "bytes",
  });
  if (found.mtime) headers.set("Last-Modified", found.mtime.toUTCString());
  if (range) headers.set("Content-Range", `bytes ${first}-${last}/${found.size}`);
  const status = range ? 206 : 200;
  if (request.method === "HEAD") {
    file.close();
    return new Response(null, { status, headers });
  }
  // A whole file goes out by Deno's own stream, which its HTTP server knows.
  if (!range) return new Response(file.readable, { status, headers });
  if (first > 0) await file.seek(first, Deno.SeekMode.Start);
  return new Response(bytes(file, last - first + 1), { status, headers });
}

export default { fetch: answer };
