// Python in a worker, so that the page answers while Python loads and calculates.
// In: {start: {pyodide, packages}}, then {id, question}. Out: {stage}, {ready},
// {failed}, {id, answer} and {id, failed}.
let reply = null;

async function start({pyodide: address, packages}) {
  postMessage({stage: "Loading Python"});
  importScripts(`${address}pyodide.js`);
  const python = await loadPyodide({indexURL: address});
  postMessage({stage: "Loading the planner"});
  python.unpackArchive(packages, "zip", {extractDir: "/planner"});
  python.runPython("import sys; sys.path.insert(0, '/planner')");
  reply = python.pyimport("trainplan.page.answers").reply;
  postMessage({ready: true});
}

onmessage = async ({data}) => {
  try {
    if (data.start) await start(data.start);
    else postMessage({id: data.id, answer: JSON.parse(reply(data.question))});
  } catch (error) {
    // of Python's traceback, its last line
    const lines = String(error.message || error).trim().split("\n");
    postMessage({id: data.id, failed: lines.at(-1)});
  }
};
