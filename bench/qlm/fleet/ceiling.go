package fleet

import (
	"time"

	"inferplan/formats/arrivals"
	"inferplan/sim/llm"
)

// Requests are those of a case, compressed to its rate.
func (c *Case) Requests(d *Data) ([]arrivals.Request, error) {
	list, err := c.Workload.requests(d, c.From, c.To, c.Seed)
	if err != nil {
		return nil, err
	}
	compress(list, c.RPS)
	return list, nil
}

// latest is how many of the last requests a ceiling looks at.
const latest = 300

// Ceiling is a number of requests per second to the last answer that no policy
// passes: each request takes as long as an idle instance does that has its model.
func (d *Data) Ceiling(c *Case) (float64, error) {
	list, err := c.Requests(d)
	if err != nil {
		return 0, err
	}
	end := time.Duration(0)
	for _, r := range list[max(0, len(list)-latest):] {
		f := family(c.Workload.Models[int(r.Model)/len(Classes)])
		alone, _, err := llm.ServeAll(llm.Options{TokenBudget: budget, BlockTokens: 16}, *hosted[f][firstKind(f)], []llm.Request{{Prompt: r.PromptTokens, Output: r.OutputTokens}})
		if err != nil {
			return 0, err
		}
		end = max(end, r.ArrivedAt+alone[0].LastToken)
	}
	return float64(len(list)) / end.Seconds(), nil
}
