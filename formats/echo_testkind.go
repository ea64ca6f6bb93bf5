//go:build testkind

package formats

import "fmt"

// PlanEcho is the kind of plans that show how a kind is added. It exists in tests
// alone: each named service gets as many whole devices as it asks for copies.
const PlanEcho = "echo"

// EchoPlan is what such a plan promises.
type EchoPlan struct {
	Services []Served `json:"services"`
}

// Served lists the services.
func (s *EchoPlan) Served() []Served { return s.Services }

// Promised is the entry of the deployed model.
func (s *EchoPlan) Promised(d *Deployed) Served {
	for i := range s.Services {
		if s.Services[i].Model == d.Model {
			return s.Services[i]
		}
	}
	return Served{}
}

// Attainment is left to whoever asks.
func (s *EchoPlan) Attainment() (float64, string) { return 0, "" }

func (s *EchoPlan) check(p *planChecker) {
	if len(s.Services) != len(p.plan.Deployment) {
		p.fail("echo.services", fmt.Sprintf("%d services", len(s.Services)), fmt.Sprintf("the %d of the deployment", len(p.plan.Deployment)), "")
		return
	}
	for i := range s.Services {
		p.served(&s.Services[i], fmt.Sprintf("echo.services[%d]", i))
	}
}

var echoKind = planKind{name: PlanEcho, section: (*EchoPlan)(nil), options: []Option{
	{Name: "copies", Key: "copies", Type: WholeOption, Default: 1, Min: 1, Max: 9, Help: "whole devices for each service"},
	{Name: "objective", Type: ChoiceOption, Default: "gpus", Choices: []string{"gpus"}, Help: "the devices used"},
	timeLimitOption,
}, schema: `{"section": {"$ref": "#/$defs/EchoPlan"}, "$defs": {
  "EchoPlan": {"type": "object", "required": ["services"], "additionalProperties": false,
    "properties": {"services": {"type": "array", "items": {"$ref": "#/$defs/Served"}}}}}}`}

// Echoes are the services that a workload asks for.
type Echoes []EchoService

// EchoService is one of them.
type EchoService struct {
	Model string  `json:"model"`
	SLO   SLO     `json:"slo"`
	RPS   float64 `json:"rps"`
}

var echoPart = workloadPart{name: "echoes", kind: PlanEcho, section: Echoes(nil), schema: `{
  "section": {"type": "array", "items": {"$ref": "#/$defs/EchoService"}}, "$defs": {
  "EchoService": {"type": "object", "required": ["model", "slo", "rps"], "additionalProperties": false,
    "properties": {"model": {"type": "string"}, "slo": {"$ref": "#/$defs/SLO"}, "rps": {"type": "number"}}}}}`}

// Files names no file.
func (s Echoes) Files() []SectionFile { return nil }

func (s Echoes) check(c *checker) {
	for i := range s {
		if !(s[i].RPS > 0) {
			c.fail(fmt.Sprintf("echoes[%d].rps", i), number(s[i].RPS), "a positive rate", "")
		}
		c.slo(s[i].SLO, fmt.Sprintf("echoes[%d].slo", i))
	}
}
