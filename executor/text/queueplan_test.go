package text

import (
	"testing"

	"inferplan/executor/completions"
)

// What agents tell is answered by the process whose it is. Another one that still hears
// it takes nothing from it.
func TestPlannerAnswersItsTerm(t *testing.T) {
	p := &planning{Agents: NewAgents(nil)}
	m := &mail{came: make(chan struct{}, 1)}
	p.Agents.Runs[7] = m
	for _, c := range []struct {
		own    uint64
		news   AgentNews
		answer bool
	}{
		{0, AgentNews{Term: 0, Runs: []RunNews{{Number: 7, Tokens: 1}}}, false},
		{0, AgentNews{Term: 3, Runs: []RunNews{{Number: 7, Tokens: 2}}}, false},
		{0, AgentNews{Ask: &completions.Request{}}, false},
		{2, AgentNews{Term: 3, Runs: []RunNews{{Number: 7, Tokens: 3}}}, false},
		{4, AgentNews{Term: 3, Runs: []RunNews{{Number: 7, Tokens: 4}}}, false},
		{3, AgentNews{Term: 3, Runs: []RunNews{{Number: 7, Tokens: 5}}}, true},
	} {
		p.Agents.Term.Store(c.own)
		before, answered := m.Last.Tokens, false
		p.Answer(Encode(c.news), func([]byte) { answered = true })
		if answered != c.answer || (m.Last.Tokens != before) != c.answer {
			t.Errorf("term %d of %d: answered %v, taken %v", c.news.Term, c.own, answered, m.Last.Tokens != before)
		}
	}
}
