// A trainer in JavaScript.
const data = require("fs").readFileSync("/data/tokens.json");
console.log(JSON.parse(data));
