//go:build testkind

package formats

import (
	"fmt"
	"math"

	"inferplan/formats/document"
)

// PlanEcho is a kind of plan that shows how a kind is added. It exists only in tests. A request visits five
// services, the last of which is on an instance.
const PlanEcho = "echo"

// EchoServices is the number of services.
const EchoServices = 5

// EchoPlan holds the promise of each service.
type EchoPlan struct {
	Services []Served `json:"services"`
}

// ServedModels returns one entry for all services together: a request visits them one after the other, at the rate
// of the slowest.
func (s *EchoPlan) ServedModels() []Served {
	total := Served{Model: PlanEcho, Percentile: "p99", Weight: 1, RPS: math.Inf(1)}
	for i := range s.Services {
		total.SLOUS += s.Services[i].SLOUS
		total.RPS = min(total.RPS, s.Services[i].RPS)
	}
	return []Served{total}
}

// PromiseFor returns what the plan promises for a deployed model: the entry of its service.
func (s *EchoPlan) PromiseFor(d *Deployed) Served {
	for i := range s.Services {
		if s.Services[i].Model == d.Model {
			return s.Services[i]
		}
	}
	return Served{}
}

// AttainmentGroups implements PlanSection.
func (s *EchoPlan) AttainmentGroups() [][]int { return nil }

// check reports a plan of this test kind unless it has exactly EchoServices services and deployments, each service
// valid.
func (s *EchoPlan) check(p *planChecker) {
	if len(s.Services) != EchoServices || len(p.plan.Deployment) != EchoServices {
		p.Fail("echo.services", fmt.Sprintf("%d services, %d deployed", len(s.Services), len(p.plan.Deployment)), fmt.Sprintf("%d of both", EchoServices), "")
		return
	}
	for i := range s.Services {
		p.checkServed(&s.Services[i], fmt.Sprintf("echo.services[%d]", i))
	}
}

var echoKind = planKind{name: PlanEcho, section: (*EchoPlan)(nil), options: []document.Option{
	{Name: "copies", Key: "copies", Type: document.WholeOption, Default: 1, Min: 1, Max: 9, Help: "devices that hold all services but the last"},
	{Name: "objective", Type: document.ChoiceOption, Default: "gpus", Choices: []string{"gpus"}, Help: "the devices used"},
	timeLimitOption,
}, schema: `{"section": {"$ref": "#/$defs/EchoPlan"}, "$defs": {
  "EchoPlan": {"type": "object", "required": ["services"], "additionalProperties": false,
    "properties": {"services": {"type": "array", "items": {"$ref": "#/$defs/Served"}}}}}}`}

// Echoes are the services that a workload asks for.
type Echoes []EchoService

// EchoService is one of them.
type EchoService struct {
	Model string       `json:"model"`
	SLO   document.SLO `json:"slo"`
	RPS   float64      `json:"rps"`
}

var echoPart = workloadPart{name: "echoes", kind: PlanEcho, section: Echoes(nil), schema: `{
  "section": {"type": "array", "items": {"$ref": "#/$defs/EchoService"}}, "$defs": {
  "EchoService": {"type": "object", "required": ["model", "slo", "rps"], "additionalProperties": false,
    "properties": {"model": {"type": "string"}, "slo": {"$ref": "#/$defs/SLO"}, "rps": {"type": "number"}}}}}`}

// Files names no file.
func (s Echoes) Files() []SectionFile { return nil }

// check reports to c what is wrong with the test kind's workload: another number of echoes than EchoServices, or
// one without a positive rate and a valid latency target.
func (s Echoes) check(c *document.Checker) {
	if len(s) != EchoServices {
		c.Fail("echoes", fmt.Sprintf("%d services", len(s)), fmt.Sprint(EchoServices), "")
	}
	for i := range s {
		if !(s[i].RPS > 0) {
			c.Fail(fmt.Sprintf("echoes[%d].rps", i), document.Number(s[i].RPS), "a positive rate", "")
		}
		checkSlo(c, s[i].SLO, fmt.Sprintf("echoes[%d].slo", i))
	}
}
