package text

import (
	"testing"

	"inferplan/executor/completions"
)

// What agents tell is answered by the process whose it is. Another one that still hears
// it takes nothing from it.
func TestPlannerAnswersItsTerm(t *testing.T) {
	p := &sharedPlanner{Agents: NewAgents(nil)}
	m := &runMailbox{updated: make(chan struct{}, 1)}
	p.Agents.Runs[7] = m
	for _, c := range []struct {
		own    uint64
		news   AgentMessage
		answer bool
	}{
		{0, AgentMessage{Term: 0, Runs: []RunUpdate{{Number: 7, Tokens: 1}}}, false},
		{0, AgentMessage{Term: 3, Runs: []RunUpdate{{Number: 7, Tokens: 2}}}, false},
		{0, AgentMessage{Admission: &completions.Request{}}, false},
		{2, AgentMessage{Term: 3, Runs: []RunUpdate{{Number: 7, Tokens: 3}}}, false},
		{4, AgentMessage{Term: 3, Runs: []RunUpdate{{Number: 7, Tokens: 4}}}, false},
		{3, AgentMessage{Term: 3, Runs: []RunUpdate{{Number: 7, Tokens: 5}}}, true},
	} {
		p.Agents.Term.Store(c.own)
		before, answered := m.LastUpdate.Tokens, false
		p.AnswerMessage(Encode(c.news), func([]byte) { answered = true })
		if answered != c.answer || (m.LastUpdate.Tokens != before) != c.answer {
			t.Errorf("term %d of %d: answered %v, taken %v", c.news.Term, c.own, answered, m.LastUpdate.Tokens != before)
		}
	}
}
