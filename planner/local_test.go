package planner

import (
	"strings"
	"testing"

	"inferplan/formats"
)

// Where the machine has none of the measured devices, the error names them, those of language models, too.
func TestLocalClusterNamesTheDevicesOfLanguageModels(t *testing.T) {
	profile := &formats.Profile{LLMs: []formats.LLMProfile{{Model: "chat", Instances: []formats.LLMInstance{{Device: "L40S"}, {Device: "H100"}, {Device: "L40S"}}}}}
	_, _, err := LocalCluster(profile, Machine{Cores: 4})
	if err == nil || !strings.Contains(err.Error(), "measured (H100, L40S)") {
		t.Errorf("found %v", err)
	}
}
