package apiserver

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"offramp.dev/offramp/aggregator/authority"
)

// BundleKey is the key of the ConfigMap under which the certificates to trust are published, PEM.
const BundleKey = "ca.crt"

// Shared keeps a certificate authority in a Secret and publishes it in a ConfigMap. Where both exist, empty at first, the
// rights to get and update them by name are enough; where they do not, they are created.
type Shared struct {
	API *API
	// Namespace holds the Secret and the ConfigMap with these names.
	Namespace, Secret, ConfigMap string
}

var _ authority.Store = Shared{}

// Load implements authority.Store.
func (s Shared) Load(ctx context.Context) (map[string][]byte, string, error) {
	secret, err := s.API.core.Secrets(s.Namespace).Get(ctx, s.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the secret %s/%s: %w", s.Namespace, s.Secret, err)
	}
	return secret.Data, secret.ResourceVersion, nil
}

// Save implements authority.Store.
func (s Shared) Save(ctx context.Context, data map[string][]byte, version string) error {
	secrets := s.API.core.Secrets(s.Namespace)
	if version == "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.Secret}, Data: data}
		_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		return s.told("create the secret", s.Secret, err)
	}
	secret, err := secrets.Get(ctx, s.Secret, metav1.GetOptions{})
	if err != nil {
		return s.told("read the secret", s.Secret, err)
	}
	// The version that was read, not the one that is there: whatever came in between is a conflict. Labels are others'.
	secret.ResourceVersion, secret.Data = version, data
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	return s.told("update the secret", s.Secret, err)
}

// Publish implements authority.Store.
func (s Shared) Publish(ctx context.Context, bundle []byte) error {
	maps := s.API.core.ConfigMaps(s.Namespace)
	shown, err := maps.Get(ctx, s.ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: s.ConfigMap}, Data: map[string]string{BundleKey: string(bundle)}}
		_, err := maps.Create(ctx, created, metav1.CreateOptions{})
		return s.told("create the config map", s.ConfigMap, err)
	}
	if err != nil {
		return s.told("read the config map", s.ConfigMap, err)
	}
	if bytes.Equal([]byte(shown.Data[BundleKey]), bundle) {
		return nil
	}
	if shown.Data == nil {
		shown.Data = map[string]string{}
	}
	shown.Data[BundleKey] = string(bundle)
	_, err = maps.Update(ctx, shown, metav1.UpdateOptions{})
	return s.told("update the config map", s.ConfigMap, err)
}

// told names what failed, and a conflict as authority knows it.
func (s Shared) told(doing, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s %s/%s: %w", doing, s.Namespace, name, authority.ErrConflict)
	default:
		return fmt.Errorf("%s %s/%s: %w", doing, s.Namespace, name, err)
	}
}
