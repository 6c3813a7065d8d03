// Carries one client through the conversations with a tool, streamed and whole: what it called, thought and answered.
import { asked, report } from './cases.mjs';

/** What the tool returns; `called` notes for which cities it was called. */
function weatherOf(called) {
  return async ({ city }) => {
    called.push(city);
    return asked.results[city];
  };
}

/** carry(question, isStreamed, run): {answer, thought}, after the client has called run as often as it was told to. */
export async function reportConversations(carry) {
  const cases = {};
  for (const [name, question] of Object.entries(asked.questions)) {
    for (const way of ['whole', 'streamed']) {
      cases[`${name}, ${way}`] = async () => {
        const cities = [];
        return { cities, ...(await carry(question, way === 'streamed', weatherOf(cities))) };
      };
    }
  }
  await report(cases);
}
