package workflow

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
)

// What is written of groups is read as the same groups.
func TestGroupsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := []formats.Pool{{Device: "A100"}, {Device: "H100"}}[:rapid.IntRange(1, 2).Draw(t, "pools")]
		var list []ModelGroup
		for i := range rapid.IntRange(1, 3).Draw(t, "groups") {
			g := ModelGroup{Models: []string{string(rune('a' + 2*i)), string(rune('b' + 2*i))}[:rapid.IntRange(1, 2).Draw(t, "models")]}
			for range pools {
				g.Devices = append(g.Devices, rapid.IntRange(0, 9).Draw(t, "devices"))
			}
			if g.DeviceCount() == 0 {
				g.Devices[0] = 1
			}
			list = append(list, g)
		}
		text := GroupsText(list, pools)
		again, err := parseGroups(text, pools)
		if err != nil || !slices.EqualFunc(list, again, func(a, b ModelGroup) bool {
			return slices.Equal(a.Models, b.Models) && slices.Equal(a.Devices, b.Devices)
		}) {
			t.Fatalf("%v is written %q and read %v: %v", list, text, again, err)
		}
	})
}
