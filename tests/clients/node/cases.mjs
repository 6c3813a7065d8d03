// Runs one client's cases one after the other and prints what each came to, as JSON for the test that called.

/** What the test asks: url, model, question, endless (a question whose answer goes on and on), json, most (tokens). */
export const asked = JSON.parse(process.argv[2]);

export async function report(cases) {
  const told = {};
  for (const [name, run] of Object.entries(cases)) {
    try {
      told[name] = await run();
    } catch (error) {
      told[name] = { failed: `${error.constructor.name}: ${error.message}`, stack: String(error.stack) };
    }
  }
  process.stdout.write(JSON.stringify(told));
}

/** The fields of the error that a call must end with. */
export async function failure(call) {
  try {
    await call();
  } catch (error) {
    return { name: error.constructor.name, status: error.status ?? error.statusCode, message: error.message };
  }
  throw new Error('nothing was thrown');
}

/** How many requests the frontend has given up, once no row is live: asked while this process still runs. */
export async function givenUp() {
  for (;;) {
    const response = await fetch(new URL('/stats', asked.url));
    const { engine, frontend } = await response.json();
    const { waiting, prefilling, decoding } = engine.rows;
    if (frontend.rows + waiting + prefilling + decoding === 0) return frontend.cancels_sent.gone ?? 0;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Reads three pieces of a stream, gives it up, and says how many requests were given up by that. */
export async function cancelled(begin) {
  const before = await givenUp();
  const { pieces, abort } = await begin();
  let count = 0;
  try {
    for await (const piece of pieces) {
      if (piece) count += 1;
      if (count === 3) abort();
    }
  } catch (error) {
    if (!/abort/i.test(`${error.name} ${error.message}`)) throw error;
  }
  return { pieces: count, givenUp: (await givenUp()) - before };
}
