package deploycheck

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// Render renders a chart as `helm template` does, values checked against its schema first.
func Render(folder, namespace string, values map[string]any) ([]Object, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	release := common.ReleaseOptions{Name: "offramp", Namespace: namespace, Revision: 1, IsInstall: true}
	rendering, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, fmt.Errorf("check the values: %w", err)
	}
	files, err := engine.Render(chart, rendering)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	var objects []Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		found, err := Decode([]byte("\n" + strings.TrimPrefix(files[name], "---")))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
