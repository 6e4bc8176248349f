// Load by k6: requests at a rate of their own, whether earlier ones have been answered or not, and a target that is kept or not.
import http from "k6/http";
import { check } from "k6";

const body = open("request.json");
const parameters = { headers: { "Content-Type": "application/json" }, timeout: "5s" };

export const options = {
  discardResponseBodies: true,
  scenarios: {
    predict: { executor: "constant-arrival-rate", rate: 200, timeUnit: "1s", duration: "30s", preAllocatedVUs: 50, maxVUs: 200 },
  },
  thresholds: { http_req_failed: ["rate==0"], http_req_duration: ["p(99)<50"] },
};

export default function () {
  const reply = http.post(`${__ENV.URL || "http://localhost:8501"}/v1/models/digits:predict`, body, parameters);
  check(reply, { "is 200": (each) => each.status === 200 });
}
