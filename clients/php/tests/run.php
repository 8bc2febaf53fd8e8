<?php
/**
 * The tests of the store, against the rig: python3 clients/rig/rig.py -- php clients/php/tests/run.php [TEST..]
 * A test is a function whose name begins with `test_`.
 */

declare(strict_types=1);

use Latchgate\Symfony\LatchgateStore;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

error_reporting(E_ALL);
set_error_handler(static function (int $level, string $message, string $file, int $line): bool {
    // A warning that `@` silences is no failure.
    return error_reporting() & $level ? throw new ErrorException($message, 0, $level, $file, $line) : false;
});
require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/../src/LatchgateStore.php';

const RIG = 'LATCHGATE_RIG';

function http(string $method, string $url, ?array $body = null, array $headers = []): array
{
    $context = stream_context_create(['http' => [
        'method' => $method, 'ignore_errors' => true, 'timeout' => 60.0,
        'header' => ['Content-Type: application/json', ...$headers],
        'content' => null === $body ? '' : json_encode($body),
    ]]);

    return json_decode((string) file_get_contents($url, false, $context), true) ?? [];
}
function rig(string $method, string $path, ?array $body = null): array
{
    return http($method, getenv(RIG).'/rig'.$path, $body);
}
function fault(string $kind, string $method, array $more = []): void
{
    rig('POST', '/fault', ['kind' => $kind, 'method' => $method] + $more);
}
function proxy(): string
{
    static $url;

    return $url ??= rig('GET', '')['proxy'];
}
function store(float $ttl = 30.0): LatchgateStore
{
    return new LatchgateStore(proxy(), null, $ttl, 'php test');
}
function same(mixed $expected, mixed $seen, string $what = ''): void
{
    $expected === $seen || throw new Exception(trim($what.': expected '.var_export($expected, true).', seen '.var_export($seen, true), ': '));
}
function throws(string $class, callable $what): Throwable
{
    try {
        $what();
    } catch (Throwable $error) {
        $error instanceof $class || throw $error;

        return $error;
    }
    throw new Exception("no $class was thrown");
}
function key_named(string $name): Key
{
    return new Key($name.':'.bin2hex(random_bytes(4)));
}
function holders(Key $key): array
{
    return http('GET', proxy().'/locks/'.rawurlencode((string) $key))['holders'];
}

function test_the_first_example_of_the_readme_runs(): void
{
    preg_match('/^```php\n(.*?)^```$/ms', file_get_contents(__DIR__.'/../README.md'), $found);
    same(true, str_contains($found[1], 'http://localhost:7420'));
    ob_start();
    eval(str_replace('http://localhost:7420', proxy(), $found[1]));
    same(1, preg_match('/^deploying under fencing token \d+\n$/', ob_get_clean()));
    same([], holders(new Key('deploy')));
}

function test_a_lock_excludes_and_is_released(): void
{
    [$store, $key] = [store(), key_named('plain')];
    $other = new Key((string) $key);
    $store->save($key);
    same(true, $store->exists($key));
    same(false, $store->exists($other));
    throws(LockConflictedException::class, fn () => $store->save($other));
    $store->delete($other);
    same(true, $store->exists($key), 'a key without a lease releases nothing');
    $fence = $store->fencingToken($key);
    $store->delete($key);
    same(false, $store->exists($key));
    $store->save($other);
    same(true, $store->fencingToken($other) > $fence, 'fencing tokens rise');
    $store->delete($other);
}

function test_the_owner_and_the_mode_are_shown(): void
{
    [$store, $key] = [store(), key_named('shown')];
    $store->save($key);
    same('php test', holders($key)[0]['owner']);
    same('exclusive', holders($key)[0]['mode']);
    $store->delete($key);
}

function test_a_refresh_sets_the_ttl_and_an_expired_lease_is_gone(): void
{
    [$store, $key] = [store(0.3), key_named('ttl')];
    $store->save($key);
    $store->putOffExpiration($key, 1.5);
    usleep(700_000);
    same(true, $store->exists($key));
    same(true, $key->getRemainingLifetime() < 0.85);
    usleep(1_000_000);
    same(true, $key->isExpired());
    same(false, $store->exists($key));
    throws(LockConflictedException::class, fn () => $store->putOffExpiration($key, 1));
}

function test_the_lock_of_symfony_acquires_refreshes_and_releases(): void
{
    $factory = new LockFactory(store());
    $name = (string) key_named('factory');
    $lock = $factory->createLock($name, 20);
    same(true, $lock->acquire());
    same(true, $lock->isAcquired());
    same(true, $lock->getRemainingLifetime() > 15);
    same(false, $factory->createLock($name)->acquire());
    $lock->refresh(25);
    $lock->release();
    same(false, $lock->isAcquired());
    same(true, $factory->createLock($name)->acquire());
}

function test_readers_share_a_lock_and_exclude_a_writer(): void
{
    $store = store();
    $one = key_named('readers');
    [$two, $writer] = [new Key((string) $one), new Key((string) $one)];
    $store->saveRead($one);
    $store->saveRead($two);
    throws(LockConflictedException::class, fn () => $store->save($writer));
    throws(LockConflictedException::class, fn () => $store->save($one));
    same(true, $store->exists($one), 'a reader that cannot become a writer is still a reader');
    $store->delete($two);
    $store->save($one);
    same('exclusive', holders($one)[0]['mode']);
    throws(LockConflictedException::class, fn () => $store->saveRead($two));
    $store->saveRead($one);
    $store->saveRead($two);
    $store->delete($one);
    $store->delete($two);
}

function test_a_blocking_acquire_waits_in_the_queue(): void
{
    [$store, $key] = [store(1.2), key_named('wait')];
    $store->save($key);
    $next = new Key((string) $key);
    $began = hrtime(true);
    $store->waitAndSave($next);
    $took = (hrtime(true) - $began) / 1e9;
    same(true, $took > 0.8 && $took < 8, "waited $took s");
    same(true, $store->exists($next));
    same(1, count(array_filter(rig('GET', '/log'), fn (array $one): bool => isset($one['body']['wait_ms']))), 'one request waits');
    $store->delete($next);
}

function test_a_key_that_was_serialized_is_still_the_holder(): void
{
    [$store, $key] = [store(), key_named('serialized')];
    $store->save($key);
    $copy = unserialize(serialize($key));
    same(true, store()->exists($copy));
    store()->delete($copy);
    same(false, $store->exists($key));
}

function test_a_lost_answer_to_an_acquire_leaves_one_lease(): void
{
    [$store, $key] = [store(), key_named('lost')];
    foreach (['lose-reply', 'lose-request', 'unknown'] as $kind) {
        fault($kind, 'POST');
        $store->save($key);
        same(1, count(holders($key)), $kind);
        $store->delete($key);
        same([], holders($key), $kind);
    }
}

function test_a_lost_answer_to_a_release_is_no_loss(): void
{
    [$store, $key] = [store(), key_named('release')];
    foreach (['lose-reply', 'unknown', 'lose-request'] as $kind) {
        $store->save($key);
        fault($kind, 'DELETE');
        $store->delete($key);
        same([], holders($key), $kind);
    }
}

function test_a_410_after_a_release_without_an_answer_is_unknown(): void
{
    [$store, $key] = [store(), key_named('doubt')];
    $store->save($key);
    fault('lose-request', 'DELETE');
    http('POST', proxy().'/locks/'.rawurlencode((string) $key).'/break', ['fencing_token' => $store->fencingToken($key), 'reason' => 'a test']);
    $error = throws(LockReleasingException::class, fn () => $store->delete($key));
    same(true, str_contains($error->getMessage(), 'It is not known'));
}

function test_a_gateway_that_allows_shorter_waits_only_is_waited_for(): void
{
    rig('POST', '/gateway', ['which' => 'a', 'do' => 'term']);
    rig('POST', '/gateway', ['which' => 'a', 'do' => 'start', 'env' => ['LATCHGATE_LIMITS_MAX_WAIT_MS' => '1000']]);
    [$store, $key] = [store(3.0), key_named('short')];
    $store->save($key);
    $next = new Key((string) $key);
    $store->waitAndSave($next);
    same(true, $store->exists($next));
}

function test_a_lock_that_was_lost_is_never_released_with_success(): void
{
    [$store, $key] = [store(), key_named('broken')];
    $store->save($key);
    http('POST', proxy().'/locks/'.rawurlencode((string) $key).'/break', ['fencing_token' => $store->fencingToken($key), 'reason' => 'a test']);
    same(false, $store->exists($key));
    throws(LockReleasingException::class, fn () => $store->delete($key));
}

function test_a_gateway_that_cannot_serve_is_asked_again(): void
{
    [$store, $key] = [store(), key_named('busy')];
    fault('status', 'POST', ['count' => 2, 'status' => 503, 'code' => 'store-unavailable']);
    $store->save($key);
    fault('status', 'PUT', ['status' => 502, 'bare' => true]);
    $store->putOffExpiration($key, 20);
    $store->delete($key);
}

function test_any_resource_of_symfony_has_a_name(): void
{
    $store = store();
    $seen = [];
    foreach (['App\\Job with spaces', 'ümlaut', 'a/b', 'a//b', '/a', 'acme/renew', '.', '..', '', '~41', 'A', 'a~b', str_repeat('x', 300), str_repeat('x', 301)] as $resource) {
        $key = new Key($resource);
        $store->save($key);
        same(true, $store->exists($key), $resource);
        $seen[] = $key;
    }
    $names = array_column(http('GET', proxy().'/locks?limit=100')['locks'], 'name');
    same(true, in_array('a/b', $names, true), 'a name stays as it is');
    same(count($seen), count(array_filter($seen, fn (Key $key): bool => $store->exists($key))), 'no two resources have one name');
    foreach ($seen as $key) {
        $store->delete($key);
    }
}

function test_a_secret_shows_in_no_exception(): void
{
    ini_set('zend.exception_ignore_args', '0');
    fault('status', 'POST', ['status' => 403, 'code' => 'forbidden']);
    $store = new LatchgateStore(proxy(), 'lgk_a_secret');
    $error = throws(LockStorageException::class, fn () => $store->save(key_named('secret')));
    same(false, str_contains((string) $error, 'lgk_a_secret'));
    same(true, str_contains($error->getMessage(), '403 forbidden'));
}

$wanted = array_slice($argv, 1);
$tests = array_filter(get_defined_functions()['user'], fn (string $name): bool => str_starts_with($name, 'test_') && (!$wanted || in_array($name, $wanted, true)));
$failed = 0;
foreach ($tests as $test) {
    rig('POST', '/reset');
    try {
        $test();
        echo "ok $test\n";
    } catch (Throwable $error) {
        ++$failed;
        echo "RED $test: $error\n";
    }
}
printf("php: %d passed, %d failed\n", count($tests) - $failed, $failed);
exit($failed || !$tests ? 1 : 0);
